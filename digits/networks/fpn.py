# Object detector with ResNet-50: finds boxes of objects in photos, after training on a few dozen images if it starts
# from ImageNet weights.
#
# Designed for photos of 128x128 to 512x512; at least 32x32. Targets are boxes. The output “boxes”, [N, K, 6],
# contains left, top, right, bottom, score and class, in pixels of the image, the highest score first. 25,654,981
# parameters for 1 class, 53,120 of them moving averages. The encoder has the weights of the network ResNet-50: start
# from those of ImageNet, or from a model of this network. Without them, choose the small object detector.
# Recommended settings: Adam, learning rate 0.001 with cosine decay, batch size 4, 60 epochs, no mean subtraction (the
# network normalizes its input), random horizontal flips, scale and contrast.
#
# paper: Lin et al., 2017, “Feature Pyramid Networks for Object Detection”, with one map for objects of all sizes, whose
# paper: cells predict boxes as in Tian et al., 2019, “FCOS: Fully Convolutional One-Stage Object Detection”.
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=cosine batch_size=4 train_epochs=60 use_mean=none
# settings: aug_flip=fliplr aug_scale=0.25 aug_contrast=0.2
# kinds: image-object-detection
# smallest: 32
# pretrained: resnet50

import keras
from keras import layers

# The network of digits.feature_maps whose features are used.
ENCODER = "resnet50"

# Filters of the pyramid at 1/32, 1/16, 1/8 and 1/4 of the resolution; multiples of GROUPS.
WIDTHS = [256, 192, 128, 64]
GROUPS = 16
# Pixels of a cell of the last map.
STRIDE = 4
# The initial score of a cell is 0.05, because few belong to an object.
RARE = -3.0


class UserModel(Tower):
    @model_property
    def inference(self):
        passed = digits.feature_maps(ENCODER, self.x, training=self.is_training)
        net = None
        for filters in WIDTHS:
            # Upsample, and add the features of the same resolution.
            finer = passed.pop()
            name = f"level{len(passed)}"
            lateral = layers.Conv2D(filters, 1, name=f"{name}_lateral")(finer)
            if net is not None:
                net = layers.Conv2D(filters, 1, name=f"{name}_reduce")(net)
                lateral += tf.image.resize(net, finer.shape[1:3], method="nearest")
            net = self.convolution(lateral, filters, name)
        rare = keras.initializers.Constant(RARE)
        scores = self.convolution(net, WIDTHS[-1], "scores_head")
        scores = layers.Conv2D(self.nclasses, 1, bias_initializer=rare, name="scores")(scores)
        # Distances to the edges, in cells: positive, and initially 4.
        edges = self.convolution(net, WIDTHS[-1], "edges_head")
        edges = 4 * tf.exp(tf.minimum(layers.Conv2D(4, 1, name="edges")(edges), 5.0))
        return {"boxes": digits.decode_boxes(scores, edges, STRIDE), "scores": scores, "edges": edges}

    def convolution(self, net, filters, name):
        net = layers.Conv2D(
            filters, 3, padding="same", use_bias=False, kernel_initializer="he_normal", name=name
        )(net)
        # Batches are too small for their statistics.
        return tf.nn.relu(layers.GroupNormalization(GROUPS, name=f"{name}_norm")(net))

    @model_property
    def loss(self):
        head = self.inference
        return digits.detection_loss(head["scores"], head["edges"], self.y, STRIDE)
