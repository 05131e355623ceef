# Segmentation with a pretrained encoder: predicts a class for every pixel of photos, if its encoder was trained
# before.
#
# Designed for photos of 128x128 to 512x512; at least 32x32. 4,540,866 parameters for 2 classes, 25,488 of them moving
# averages. Trains from scratch, too, but learns faster from trained weights of the encoder: choose a model of the
# network MobileNetV3 as the previous one, or enter a file of Keras' weights of MobileNetV3Large as pretrained weights.
# Recommended settings: Adam, learning rate 0.001 with cosine decay, batch size 8, 25 epochs, no mean subtraction
# (the network normalizes its input), random horizontal flips and contrast.
#
# paper: The decoder of a U-Net over the features of MobileNetV3, as keras.applications has it. Howard et al., 2019,
# paper: “Searching for MobileNetV3”.
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=cosine batch_size=8 train_epochs=25 use_mean=none
# settings: aug_flip=fliplr aug_contrast=0.2
# kinds: image-segmentation
# smallest: 32
# pretrained: mobilenetv3

import keras
from keras import layers

# The encoder, and what it expects of pixels of 0 to 255. Other networks of keras.applications serve as well, such as
# keras.applications.ResNet50 and keras.applications.resnet.preprocess_input.
ENCODER = keras.applications.MobileNetV3Large
preprocess = keras.applications.mobilenet_v3.preprocess_input

# Filters of the decoder at 1/16, 1/8, 1/4 and 1/2 of the resolution.
WIDTHS = [128, 64, 48, 32]


class UserModel(Tower):
    @model_property
    def inference(self):
        # Trained weights are for color images.
        color = self.x if self.input_shape[2] == 3 else tf.repeat(self.x, 3, axis=3)
        encoder = ENCODER(weights=None, include_top=False, input_shape=(*self.input_shape[:2], 3))
        for layer in encoder.layers:
            if isinstance(layer, layers.BatchNormalization):
                # Validation uses the moving averages. Keras' momentum takes thousands of steps to converge.
                layer.momentum = 0.9
        features = keras.Model(encoder.inputs, self.features(encoder), name=encoder.name)
        passed = features(preprocess(color), training=self.is_training)
        net = passed.pop()
        for filters in WIDTHS:
            # Upsample, and add the details of the features with this resolution.
            finer = passed.pop()
            name = f"up{len(passed) + 1}"
            net = tf.image.resize(net, finer.shape[1:3])
            net = tf.concat([net, self.convolution(finer, filters, f"{name}_skip", 1)], axis=3)
            net = self.convolution(net, filters, name, 3)
        scores = layers.Conv2D(max(2, self.nclasses or 0), 1, name="scores")(net)
        return tf.image.resize(scores, self.input_shape[:2])

    def features(self, encoder):
        """The last features at 1/2, 1/4, 1/8, 1/16 and 1/32 of the resolution."""
        outputs = [layer.output for layer in encoder.layers if len(layer.output.shape) == 4]
        sizes = [[-(-side // scale) for side in self.input_shape[:2]] for scale in (2, 4, 8, 16, 32)]
        return [[each for each in outputs if list(each.shape[1:3]) == size][-1] for size in sizes]

    def convolution(self, net, filters, name, size):
        net = layers.Conv2D(
            filters, size, padding="same", use_bias=False, kernel_initializer="he_normal", name=name
        )(net)
        normalize = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")
        return tf.nn.relu(normalize(net, training=self.is_training))

    @model_property
    def loss(self):
        # The Dice loss helps with classes that cover few pixels.
        return digits.segmentation_loss(self.inference, self.y) + digits.dice_loss(self.inference, self.y)
