# Small object detector: finds boxes of objects of a few classes without pretrained weights.
#
# Designed for images of 64x64 to 512x512 pixels. Returns “boxes”, [N, K, 6]: left, top, right, bottom, score and
# class, in pixels of the image, the highest score first.
# Recommended settings: Adam, learning rate 0.002, cosine decay, batches of 8, per-channel mean, random
# horizontal flips and zoom.
#
# paper: Like FCOS, the cells in the middle of an object predict its box, in a map with a cell for 4x4 pixels. Tian et
# paper: al., 2019, “FCOS: Fully Convolutional One-Stage Object Detection”.
# settings: solver_type=ADAM learning_rate=0.002 lr_policy=cosine batch_size=8 train_epochs=60 use_mean=pixel
# settings: aug_flip=fliplr aug_scale=0.25
# kinds: image-object-detection
# smallest: 16

from keras import layers

# Pixels of a cell of the maps.
STRIDE = 4
# Filters at 1/4, 1/8 and 1/16 of the resolution.
WIDTHS = [32, 64, 96]
# The initial score of a cell is 0.05, because few belong to an object.
RARE = -3.0


class UserModel(Tower):
    @model_property
    def inference(self):
        net = self.convolution(self.x / 64.0, 16, "stem", strides=2)
        passed = []
        # Downsample: larger objects become visible to a cell.
        for depth, filters in enumerate(WIDTHS, 1):
            net = self.convolution(net, filters, f"down{depth}", strides=2)
            net = self.convolution(net, filters, f"conv{depth}")
            passed.append(net)
        # Upsample, and add the features of the same resolution.
        net = passed.pop()
        for depth, filters in reversed(list(enumerate(WIDTHS[:-1], 1))):
            finer = passed.pop()
            net = layers.Conv2D(filters, 1, name=f"reduce{depth}")(net)
            net = finer + tf.image.resize(net, tf.shape(finer)[1:3], method="nearest")
            net = self.convolution(net, filters, f"up{depth}")
        net = self.convolution(net, 64, "head")
        middle = tf.keras.initializers.Constant(RARE)
        scores = layers.Conv2D(self.nclasses, 1, bias_initializer=middle, name="scores")(net)
        # Distances to the edges, in cells: positive, and initially 1.
        edges = tf.exp(tf.minimum(layers.Conv2D(4, 1, name="edges")(net), 6.0))
        return {"boxes": digits.decode_boxes(scores, edges, STRIDE), "scores": scores, "edges": edges}

    def convolution(self, net, filters, name, strides=1):
        net = layers.Conv2D(
            filters,
            3,
            strides=strides,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            name=name,
        )(net)
        normalize = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")
        return tf.nn.relu(normalize(net, training=self.is_training))

    @model_property
    def loss(self):
        head = self.inference
        return digits.detection_loss(head["scores"], head["edges"], self.y, STRIDE)
